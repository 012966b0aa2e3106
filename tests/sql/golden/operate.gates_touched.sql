SELECT DISTINCT gates.id
FROM jobs
JOIN gates ON gates.lane_id = jobs.lane_id
WHERE jobs.id = any(%(p_ids)s) AND gates.id = jobs.gate_id
