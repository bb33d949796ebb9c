"""Spark's daemon of Python workers, with what a shard's task imports in memory already.

Each worker is forked from it, and would otherwise spend a second of processor time on imports, and
a tenth on compiling the templates of the mail.
"""

import gc
from contextlib import suppress

from pyspark.daemon import manager

import shardpost.weekly_email.send_shard  # noqa: F401
from shardpost.errors import ShardpostError
from shardpost.installation import opened
from shardpost.weekly_email.own_templates import TemplateSettings, templates_of

if __name__ == "__main__":
    with suppress(ShardpostError):  # another machine may have no such folder: tasks are sent them
        templates_of(opened().values(TemplateSettings))
    gc.freeze()  # a worker's collections leave alone what it shares with the others
    manager()  # type: ignore[no-untyped-call]
