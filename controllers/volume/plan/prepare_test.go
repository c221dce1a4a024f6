package plan

// For returns the plan for a snapshot with all observations.
func For(s Snapshot) Plan { return Prepare(s).Decide() }

// RequiredObservations returns the observations that a pass makes for a snapshot.
func RequiredObservations(s Snapshot) Observations { return Prepare(s).RequiredObservations() }
