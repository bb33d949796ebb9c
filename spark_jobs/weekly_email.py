"""The weekly e-mail: freeze who holds as of the week's end, then mail each client exactly once.

Read: the newest snapshot, or the audience that is frozen already. Transform: who holds what, with
contact and subscription. Write: the audience, once; then, one Spark task per shard, the ledger and
the mail.
"""

from shardpost.spark import job
from shardpost.weekly_email.run import parser, weekly_email

if __name__ == "__main__":
    arguments = parser().parse_args()
    job.run(lambda settings: weekly_email(arguments, settings), result=arguments.result)
