SELECT revisions.id, revisions.title, revisions.description, revisions.body, revisions.front_matter, revisions.lineage
FROM revisions
WHERE revisions.id = any(%(p_ids)s)
