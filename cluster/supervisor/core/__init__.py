"""The supervisor's decisions: functions over the state, without Ray, clock or I/O."""
