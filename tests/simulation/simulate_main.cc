// SPDX-License-Identifier: Apache-2.0

// Runs simulated clusters: bazel-bin/tests/simulation/simulate --seeds=1000
// For the story of one seed in words: --seed=17 --log. For a run of hours: --minutes=120 --jobs=2.
// The exit code is 0 only if no seed shows a violation. Otherwise the violating seeds are printed.
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/logging/logging.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulation.h"

ABSL_FLAG(uint64_t, seed, 1, "The first seed.");
ABSL_FLAG(int64_t, seeds, 1, "How many seeds, one after the other.");
ABSL_FLAG(int64_t, rounds, 200, "Rounds of each job.");
ABSL_FLAG(double, minutes, 0, "Goes on with further seeds for so long; 0: as --seeds says.");
ABSL_FLAG(int, jobs, 1, "Seeds at the same time, each in a thread of its own.");
ABSL_FLAG(int64_t, failures, 10, "Ends after so many seeds that show a violation.");
ABSL_FLAG(bool, sites, false, "Passes over seeds whose clusters have no sites.");
ABSL_FLAG(bool, log, false, "Tells what happens, in words and in virtual seconds.");

namespace lodestar::simulation {
namespace {

// Interval at which a run of hours prints its progress.
constexpr absl::Duration kProgressInterval = absl::Minutes(1);

struct Totals {
  absl::Mutex mutex;
  absl::Time told_at = absl::Now();
  int64_t seeds = 0, rounds = 0, sites = 0, site_rounds = 0, contributions = 0, restores = 0,
          resumes = 0, faults = 0, failures = 0;
  uint64_t fingerprint = 0;
  absl::Duration time;
};

void RunSeed(uint64_t seed, Totals& totals) {
  const int64_t num_rounds = absl::GetFlag(FLAGS_rounds);
  if (absl::GetFlag(FLAGS_sites) && MakeScenario(seed, num_rounds).sites.empty()) return;
  SimulationOptions options;
  options.seed = seed;
  options.num_rounds = num_rounds;
  if (absl::GetFlag(FLAGS_log)) {
    options.story = [](absl::string_view line) { absl::PrintF("%s\n", line); };
  }
  const SimulationResult result = Simulate(options);
  absl::MutexLock lock(&totals.mutex);
  ++totals.seeds;
  totals.rounds += result.rounds;
  totals.sites += result.sites;
  totals.site_rounds += result.site_rounds;
  totals.contributions += result.contributions;
  totals.restores += result.restores;
  totals.resumes += result.resumes;
  totals.faults += result.faults;
  totals.time += result.time;
  totals.fingerprint ^= result.fingerprint;
  if (const absl::Time now = absl::Now(); now - totals.told_at >= kProgressInterval) {
    totals.told_at = now;
    absl::FPrintF(stderr, "%d seeds so far, %d rounds, %d violations\n", totals.seeds,
                  totals.rounds, totals.failures);
  }
  if (result.violation.empty()) return;
  ++totals.failures;
  absl::PrintF("seed %d: %s\n  (%s)\n", seed, result.violation, result.scenario);
  std::fflush(stdout);
}

int Main() {
  Totals totals;
  const uint64_t first = absl::GetFlag(FLAGS_seed);
  const double minutes = absl::GetFlag(FLAGS_minutes);
  const int64_t num_seeds = absl::GetFlag(FLAGS_seeds);
  const absl::Time start = absl::Now();
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    while (true) {
      const int64_t index = next.fetch_add(1);
      const bool is_over =
          minutes > 0 ? absl::Now() - start > absl::Minutes(minutes) : index >= num_seeds;
      {
        absl::MutexLock lock(&totals.mutex);
        if (is_over || totals.failures >= absl::GetFlag(FLAGS_failures)) return;
      }
      RunSeed(first + index, totals);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < absl::GetFlag(FLAGS_jobs); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  absl::PrintF(
      "%d seeds from %d: %d rounds, %d rounds of %d sites, %d contributions, %d faults, %d "
      "restores, %d resumes, %s of "
      "virtual time in %.1f s (%.0f rounds per minute), fingerprint %016x: %d violations\n",
      totals.seeds, first, totals.rounds, totals.site_rounds, totals.sites, totals.contributions,
      totals.faults, totals.restores, totals.resumes,
      absl::FormatDuration(absl::Trunc(totals.time, absl::Seconds(1))), seconds,
      static_cast<double>(totals.rounds) * 60 / seconds, totals.fingerprint, totals.failures);
  return totals.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lodestar::simulation

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Runs simulated clusters; see tests/simulation/README.md.");
  absl::ParseCommandLine(argc, argv);
  lodestar::logging::InitLogging("simulate", lodestar::logging::LogLevel::kError);
  return lodestar::simulation::Main();
}
