"""As much of Airflow 3 as an operator is made of: where the real one cannot be installed."""
