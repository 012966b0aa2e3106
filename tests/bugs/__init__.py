"""Public bug reports of comparable systems, O-01 to O-44 and O-56 to O-58, each a test under its number.

What other packages prove already, wholly or in part, is not said again here:

O-07  tests/processes/test_ending.py::test_a_worker_that_is_asked_to_stop_gives_back_what_it_holds
O-07  tests/processes/test_ending.py::test_what_ends_within_the_grace_period_is_kept
O-08  tests/concurrency/test_reservations.py::test_a_reaper_finds_nothing_behind_a_completion
O-08  tests/concurrency/test_reservations.py::test_a_reaper_finds_nothing_behind_a_renewal
O-08  tests/concurrency/test_reservations.py::test_a_renewal_that_commits_under_the_eyes_of_the_reaper_counts
O-11  tests/db/test_verbs.py::test_a_late_token_is_refused_by_every_verb
O-12  tests/servers/test_machines.py::test_a_machine_that_is_cut_off_writes_nothing_and_the_others_go_on
O-13  tests/concurrency/test_reservations.py::test_a_candidate_that_was_taken_since_the_snapshot_is_left_alone
O-13  tests/concurrency/test_reservations.py::test_two_claims_share_the_work
O-14  tests/concurrency/test_reservations.py::test_a_renewal_beside_an_acknowledgement_is_never_told_that_a_job_is_gone
O-15  tests/concurrency/test_publishing.py::test_two_jobs_at_one_page_take_turns
O-19  tests/concurrency/test_gates.py::test_one_leaves_a_gate_while_the_next_comes_to_it
O-19  tests/concurrency/test_gates.py::test_topics_are_planned_while_the_last_one_leaves_the_first_gate
O-21  tests/concurrency/test_operators.py::test_a_completion_after_an_open_cancel_sees_it
O-22  tests/concurrency/test_plans.py::test_two_plans_that_overlap_append_in_the_order_of_their_commits
O-22  tests/concurrency/test_plans.py::test_a_worker_does_not_wait_for_an_open_plan
O-24  tests/concurrency/test_plans.py::test_two_plans_of_a_new_site_make_each_topic_once
O-31  tests/servers/test_pooler.py::test_a_whole_run_through_the_pooler
O-31  tests/servers/test_pooler.py::test_prepared_statements_that_a_pooler_mixes_up_are_told
O-33  tests/db/test_prune.py::test_no_transaction_takes_more_rows_than_it_may
O-39  tests/db/test_attempts.py::test_one_bad_row_does_not_fail_its_batch
O-41  tests/processes/test_working.py::test_a_stage_may_do_whatever_it_likes
O-42  tests/project/test_topics.py::test_limits_hold_exactly
O-56  tests/db/test_prune.py::test_no_transaction_takes_more_rows_than_it_may
O-56  tests/db/test_prune.py::test_nothing_unfinished_is_ever_taken
O-56  tests/plans/test_plans.py::test_no_statement_of_the_work_reads_what_is_finished

Not to be tried here, because there is nothing of the kind:

O-09  how often a heartbeat comes is no setting: it follows the lease
O-22  no reader goes by the number of an event
O-23  O-25  topics have no keys for de-duplication beside their slug
O-27  O-34  nothing listens and nothing notifies
O-44  no job starts itself again
"""
