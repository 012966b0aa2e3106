DELETE FROM jobs
WHERE jobs.id = any(%(p_ids)s) AND jobs.state IN ('done', 'skipped')
