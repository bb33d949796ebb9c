"""Who the e-mails are from, by the settings."""

from shardpost.settings import Settings
from shardpost.weekly_email.model.email_context import Sender
from shardpost.weekly_email.model.mail_server_checks import (
    require_private_login,
    require_real_sender,
)


def sender_of(settings: Settings) -> Sender:
    """Return who sends the e-mails; UsageError names a setting that they cannot be sent with."""
    sender = Sender.of(
        mail_from=settings.mail_from,
        unsubscribe_url=settings.unsubscribe_url,
        list_id=settings.mail_list_id,
    )
    require_real_sender(sender, settings.mail_server)
    require_private_login(
        user=settings.smtp_user,
        tls=settings.smtp_tls,
        plain_login=settings.smtp_plain_login,
        host=settings.mail_server,
    )
    return sender
