"""Random conditions of who holds, and positions that are near to meeting them."""

from hypothesis import strategies as st

TEXTS = st.sampled_from(
    ["US", "GB", "us", "U", "A%", "_S", "a{b}", "", "é", "😀", "\uffff", "10", "9"]
)
PATTERNS = st.sampled_from(["U%", "%S", "_", "__", "%", "", "A%", "_S", "%{%", "é", "%.%", "U_"])
AMOUNTS = st.sampled_from(["0", "-0", "-0.0", "1.5", "100", "1e400", "-1e400", "5e-324", "0.1"])
NUMBERS = st.sampled_from(["0", "-0.0", "1.50", "100", "-1", "0.1", "999999999999999"])
NAMES = st.sampled_from(["position", "client", "ticker", "exchange", "country"])
SIGNS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
QUOTED = TEXTS.map("'{}'".format)
NOT = st.sampled_from(["", "NOT "])


def listed(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return lists of IN, also such that Spark makes a set of."""
    return st.lists(values, min_size=1, max_size=14).map(lambda some: f"({', '.join(some)})")


COMPARISONS = st.one_of(
    st.builds("{} {} {}".format, NAMES, SIGNS, st.one_of(QUOTED, NAMES)),
    st.builds("amount {} {}".format, SIGNS, NUMBERS),
    st.builds("{} {}IN {}".format, NAMES, NOT, listed(QUOTED)),
    st.builds("amount {}IN {}".format, NOT, listed(NUMBERS)),
    st.builds("{} {}LIKE '{}'".format, NAMES, NOT, PATTERNS),
    st.builds("country IS {}NULL".format, NOT),
    st.sampled_from(["TRUE", "FALSE"]),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda part: st.one_of(
        st.builds("{} AND {}".format, part, part),
        st.builds("({} OR {})".format, part, part),
        st.builds("NOT ({})".format, part),
    ),
    max_leaves=5,
)
ANY_POSITIONS = st.fixed_dictionaries(
    dict.fromkeys(("position", "client", "ticker", "exchange"), TEXTS)
    | {"amount": AMOUNTS, "country": st.one_of(st.none(), TEXTS)}
)
