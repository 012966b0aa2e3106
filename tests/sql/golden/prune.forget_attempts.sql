WITH gone AS (DELETE FROM attempts WHERE attempts.job_id = any(%(p_ids)s) RETURNING attempts.fence)
SELECT count(*) AS count_1, max(gone.fence) AS max_1
FROM gone
