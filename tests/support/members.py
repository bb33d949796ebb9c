"""The columns of the members of an audience, as a task gets them from Spark."""

import pyarrow as pa

FIELDS = ("position", "ticker", "amount", "exchange")
MEMBERS = pa.schema(
    [
        ("client", pa.string()),
        ("name", pa.string()),
        ("email", pa.string()),
        ("has_contact", pa.bool_()),
        ("subscribed", pa.bool_()),
        ("name_now", pa.string()),
        ("email_now", pa.string()),
        ("positions", pa.list_(pa.struct([(name, pa.string()) for name in FIELDS]))),
    ]
)
