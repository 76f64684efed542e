"""The policies of TATA's figures. A learned one that this version does not have is left out, and the reason stated."""

from collections.abc import Sequence

from penstock.policies.registry import PolicyKind, names

TATA, NI = "tata", "ni"
FLINK, I_STORM = "flink", "i-storm"
OURS = ("neural", "neural-search", "local-search")


def base(policy: str) -> str:
    """Return the name of a policy without its parameters."""
    return policy.partition(":")[0]


def unknown(policy: str) -> str:
    """Return why a policy cannot be asked; empty if it can."""
    return "" if base(policy) in names(PolicyKind.PLACEMENT) else f"no policy is named {base(policy)}"


def known(policies: Sequence[str]) -> list[str]:
    """Return the policies that there are."""
    return [policy for policy in policies if not unknown(policy)]


def ours(policy: str) -> str:
    """Return the mark of claims that are not the paper's."""
    return "" if base(policy) == TATA else "ours: "
