SELECT pg_notify(%(p_channel)s, %(pg_notify_2)s::VARCHAR) AS pg_notify_1
