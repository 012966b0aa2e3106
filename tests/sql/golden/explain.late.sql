SELECT jobs.id
FROM jobs
LEFT OUTER JOIN lanes ON lanes.id = jobs.lane_id
LEFT OUTER JOIN workers ON workers.name = jobs.reserved_by
WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.state = 'reserved' AND (jobs.lease_expires_at <=
    statement_timestamp() OR CAST(EXTRACT(epoch FROM jobs.lease_expires_at - statement_timestamp()) AS FLOAT) * 2 <
    least(CAST((lanes.overrides -> jobs.stage) ->> 'lease_seconds' AS FLOAT), CAST((workers.stages -> 'stages') ->>
    jobs.stage AS FLOAT)))
ORDER BY jobs.id
LIMIT %(p_limit)s::BIGINT
