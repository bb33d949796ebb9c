"""The page in Airflow's navigation: what the commands print, and their actions.

Handlers ask the same functions as the commands do; nothing here is queried in another way.
"""
