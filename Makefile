# The commands of this repository. Everything longer than a line lives in scripts/.
.DEFAULT_GOAL := help
.PHONY: help run test check bench faults

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

run: ## Build and start the service; it prints what to try next
	@echo "building; the first time takes some minutes"
	cargo run -q -p mailbox-cli -- serve

test: ## Run everything CI runs
	@scripts/test.sh

check: ## The fast inner loop: format, lints, unit tests, repository rules
	@scripts/check.sh

bench: ## Measure, print ratios to peers of the same run, fail if a bound is missed
	@scripts/install-peers.sh
	cargo build -q --profile bench -p mailbox-cli
	cargo run -q --profile bench -p mailbox-bench

faults: ## Kill, cut the power, fill the disk, fail syncs, race: nothing promised may be lost
	@scripts/run-faults.sh
