UPDATE stages
SET width=%(p_width)s::INTEGER
WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.name = %(p_stage)s::VARCHAR
