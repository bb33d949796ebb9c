"""The weekly e-mail: freeze who holds as of the week's end, then mail each client exactly once.

Read: the newest snapshot, or the audience that is frozen already. Transform: who holds what, with
contact and subscription. Write: the audience, once; then, one Spark task per shard, the ledger and
the mail.
"""

from shardpost.spark import driver
from shardpost.weekly_email.email_run import run
from shardpost.weekly_email.model.email_request import EmailRequest

if __name__ == "__main__":
    driver.run_job(EmailRequest, run, is_real=lambda asked: asked.is_real)
