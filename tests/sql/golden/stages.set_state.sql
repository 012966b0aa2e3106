UPDATE stages
SET state=%(p_state)s::VARCHAR
WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.name = %(p_name)s::VARCHAR
