"""The control loop: observe, decide, guard, apply the smallest change, wait, measure, record.

It knows a running application only as a `Plant` (`plant`), which is a run (`live`), the twin (`twin`) or a test's own;
what its tasks process is counted (`counts`).
What is decided is a pure function of what was observed (`proposing`, `deciding`), so that any decision can be made
again from the ledger (`ledger`, `replaying`), by the same policy or by another. What may be done is the guard's to say
(`guard`), what became of it the measurement's (`measuring`). `autopilot` leads through the steps; `pilot` does so in a
thread beside a run.
"""
