UPDATE jobs
SET state='waiting', slot=NULL
FROM gates
WHERE gates.id = jobs.gate_id AND gates.width = 1 AND jobs.lane_id = %(p_lane_id)s::BIGINT AND jobs.position BETWEEN
    %(p_first)s::BIGINT AND %(p_last)s::BIGINT AND jobs.state = 'pending'
RETURNING jobs.id
