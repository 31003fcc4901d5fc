# SPDX-License-Identifier: Apache-2.0
# What stopped.pl runs with `do`: code of a BEGIN block, while this file is being compiled.
BEGIN {
	spin();
}
1;
