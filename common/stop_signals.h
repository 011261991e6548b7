// The signals that ask a program to end in order, for those that take them with sigwait().
#pragma once

#include <csignal>

namespace lodestar {

// SIGTERM, SIGINT and SIGHUP, which comes when the terminal is gone; SIGHUP only if it was not
// ignored when the program began, as it is under nohup.
sigset_t StopSignals();

// Blocks StopSignals() for the calling thread and those it starts later. Called once at the top of
// main(), before any thread.
void BlockStopSignals();

}  // namespace lodestar
