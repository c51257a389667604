package client

import "net/url"

// DryRun returns the collection for requests that change nothing: Create, Patch, PatchIf and Delete are
// validated and authorized, and return what the change would result in. Other methods are unaffected.
func (c *Collection) DryRun() *Collection {
	return &Collection{caller: c.caller, path: c.path, dryRun: true}
}

func (c *Collection) changeQuery() url.Values {
	if !c.dryRun {
		return nil
	}
	return url.Values{"dry_run": {"true"}}
}
