"""Topics as they should be and as they are: values, plans and rules, without a client."""
