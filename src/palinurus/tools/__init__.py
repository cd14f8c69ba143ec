"""Tool functions, the policy and the gate in front of them, approvals and grants."""
