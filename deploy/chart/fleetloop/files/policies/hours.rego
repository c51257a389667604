# Business hours: an example, off in config.rego.
package fleetloop.safety

import data.fleetloop.safety.config

violations contains msg if {
	config.business_hours.enabled
	class == "production"
	changes
	risk_from(config.dry_run_min_risk)
	not open_now
	msg := sprintf("production can be changed only from %d to %d o'clock %s on business days", [config.business_hours.from, config.business_hours.until, config.business_hours.timezone])
}

open_now if {
	at := [input.now * 1000000000, config.business_hours.timezone]
	time.weekday(at) in config.business_hours.days
	[hour, _, _] := time.clock(at)
	hour >= config.business_hours.from
	hour < config.business_hours.until
}
