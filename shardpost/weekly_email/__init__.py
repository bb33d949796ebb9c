"""The weekly e-mail: to each client, once, its positions as of the week's end."""
