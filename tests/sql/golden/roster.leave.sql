DELETE FROM workers
WHERE workers.name = %(p_name)s::VARCHAR
