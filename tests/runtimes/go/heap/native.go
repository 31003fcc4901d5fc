// SPDX-License-Identifier: Apache-2.0

// Makes the program one that uses C, whose linker is the system's.
package main

// static int one(void) { return 1; }
import "C"

func init() { kept = make([][]byte, 0, int(C.one())) }
