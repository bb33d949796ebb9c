"""Pure: the form of a list, its source, the plan and its refusal, import ids."""
