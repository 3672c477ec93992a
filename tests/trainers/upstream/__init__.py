"""The trainers' own estimators, compared with ours and judged by the exam."""
