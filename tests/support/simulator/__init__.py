"""Real schedulers on simulated time: what a trace of arrivals would have met, exactly and in no time."""
