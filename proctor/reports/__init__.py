"""Reports: what a run, a campaign, a comparison or a line did, as one file that can be verified."""
