DELETE FROM events
WHERE events.job_id = any(%(p_ids)s)
