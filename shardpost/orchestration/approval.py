"""The operator that asks a person: Airflow's own, whose questions stand under Required Actions."""

from typing import Any

from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.providers.standard.operators.hitl import HITLBranchOperator
from airflow.sdk import Context, Param

from shardpost.orchestration.failures import alert_of_attention

ANSWER = "answer"
REASON = "reason"
FORM = {
    REASON: Param(
        None, type=["null", "string"], title="Why", description="Recorded on the topic decisions."
    )
}


class Approval(HITLBranchOperator):
    """Waits for a person, without a slot, and follows the task that the chosen option names.

    That it waits is told through the alert channels. Its XCom `answer` is {"by", "why"}; the latter
    is None if its `params` are not FORM, or the field was left empty.
    """

    def execute(self, context: Context) -> Any:
        """Ask."""
        link = self.generate_link_to_ui_from_context(context=context)
        alert_of_attention(context, [f"{self.subject} Answer at {link}"])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Keep who answered; go on as was chosen."""
        if "error" not in event:
            by = event["responded_by_user"]["name"]
            why = (event["params_input"] or {}).get(REASON)
            context["ti"].xcom_push(key=ANSWER, value={"by": by, "why": why})
        return super().execute_complete(context, event)

    def process_trigger_event_error(self, event: dict[str, Any]) -> None:
        """Fail, in words where nobody answered: the next attempt asks again."""
        if event["error_type"] == "timeout":
            raise HITLTimeoutError(f"nobody answered within {self.response_timeout}")
        super().process_trigger_event_error(event)
