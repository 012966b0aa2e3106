INSERT INTO jobs (site_id, stage, state, max_attempts, run_at, hold, cancel_requested)
SELECT sites.id, 'assemble', 'pending', %(p_max_attempts)s::INTEGER AS anon_1, clock_timestamp() +
    %(p_delay_seconds)s::INTEGER * interval '1 second' AS anon_2, NULL AS anon_3, false AS anon_4
FROM sites
WHERE sites.id = any(%(p_site_ids)s)
ON CONFLICT DO NOTHING
RETURNING jobs.id
