"""Pure: the source, the plan and its refusal, import ids."""
