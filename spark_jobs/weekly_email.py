"""The weekly e-mail: freeze who holds as of the week's end, then mail each client exactly once.

Read: the newest snapshot, or the audience that is frozen already. Transform: who holds what, with
contact and subscription. Write: the audience, once; then, one Spark task per shard, the ledger and
the mail.
"""

from shardpost.spark import driver
from shardpost.weekly_email.email_job import parser, request_of
from shardpost.weekly_email.email_run import run

if __name__ == "__main__":
    arguments = parser(__doc__).parse_args()
    driver.run_body(lambda settings: run(request_of(arguments), settings), result=arguments.result)
