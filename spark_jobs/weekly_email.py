"""The weekly e-mail: freeze who holds as of the week's end, then mail each client exactly once.

Read: the newest snapshot, or the audience that is frozen already. Transform: who holds what, with
contact and subscription. Write: the audience, once; then, one Spark task per shard, the ledger and
the mail.
"""

from shardpost.spark import driver
from shardpost.weekly_email.email_job import EmailRequest
from shardpost.weekly_email.email_run import run


def noted_as(asked: EmailRequest, job: str) -> str | None:
    """Return of what it is noted that it was refused: of a mapped task, its shards alone."""
    part = f"{job} shards {asked.shards}" if asked.is_part else job
    return part if asked.is_real else None


if __name__ == "__main__":
    driver.run_job(EmailRequest, run, noted_as=noted_as)
