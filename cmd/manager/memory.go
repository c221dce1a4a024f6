package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// memoryLimitVariable is the environment variable with the container's memory limit in bytes. The Deployment sets it.
const memoryLimitVariable = "CONTAINER_MEMORY_LIMIT"

// heapShare is the percentage of the container's memory that the Go runtime may use. The rest is for memory that the runtime does not
// count; https://go.dev/doc/gc-guide#Memory_limit recommends 5 to 10 percent.
const heapShare = 90

// garbageShare is the GOGC value: garbage as a percentage of live memory. Go's default is 100. With thousands of nodes, memory is the
// first bottleneck.
const garbageShare = 50

// limitMemory sets the memory limit and GOGC of the Go runtime, so that the garbage collector frees memory before the kernel kills the
// process. The environment variables GOMEMLIMIT and GOGC take precedence.
func limitMemory() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageShare)
	}
	value := os.Getenv(memoryLimitVariable)
	if value == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(value, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("environment variable %s: %q: must be a number of bytes above 0, or unset", memoryLimitVariable, value)
	}
	debug.SetMemoryLimit(limit / 100 * heapShare)
	return nil
}
