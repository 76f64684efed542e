"""The policies of TATA's figures."""

TATA, NI = "tata", "ni"
FLINK, I_STORM = "flink", "i-storm"
OURS = ("neural", "neural-search", "local-search")


def base(policy: str) -> str:
    """Return the name of a policy without its parameters."""
    return policy.partition(":")[0]


def ours(policy: str) -> str:
    """Return the mark of claims that are not the paper's."""
    return "" if base(policy) == TATA else "ours: "
