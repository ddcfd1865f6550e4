"""Airflow's two ways to fail: with retries, and for good."""


class AirflowException(Exception):
    pass


class AirflowFailException(AirflowException):
    pass
