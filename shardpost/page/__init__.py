"""The page in Airflow's navigation: what the commands say, to be seen and acted upon.

Handlers ask the same functions as the commands do; nothing here is queried in another way.
"""
