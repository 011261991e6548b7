// SPDX-License-Identifier: Apache-2.0

#include "common/job/job_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>

namespace lodestar::job {
namespace {

std::map<std::string, std::string> AsMap(const JobSpec& job) {
  std::map<std::string, std::string> settings;
  for (const JobSetting& setting : JobSettings(job)) {
    EXPECT_TRUE(settings.emplace(setting.flag, setting.value).second) << setting.flag;
  }
  return settings;
}

TEST(JobSettingsTest, ValuesAreThoseOneWouldGive) {
  JobSpec job;
  job.model = *params::ModelPreset("gpt-nano");
  std::get<params::GptSpec>(job.model.architecture).dropout = 0.2;
  job.mode = Mode::kLocalSgd;
  job.schedule.peak = 0.0003;
  job.batch_size = 12;
  job.error_feedback = false;
  const std::map<std::string, std::string> settings = AsMap(job);
  EXPECT_EQ(settings.at("mode"), "local_sgd");
  EXPECT_EQ(settings.at("learning_rate"), "0.0003");
  EXPECT_EQ(settings.at("epsilon"), "1e-08");
  EXPECT_EQ(settings.at("dropout"), "0.2");
  EXPECT_EQ(settings.at("batch_size"), "12");
  EXPECT_EQ(settings.at("max_rounds_ahead"), "-1");
  EXPECT_EQ(settings.at("error_feedback"), "false");
  EXPECT_EQ(settings.at("push_encoding"), "fp32");
}

TEST(JobSettingsTest, NumbersReadBackToTheBit) {
  JobSpec job;
  for (double rate : {0.1 + 0.2, 1.0 / 3.0, 6e-4, 1e-300, 5e-324, 0.0}) {
    job.schedule.peak = rate;
    EXPECT_EQ(std::strtod(AsMap(job).at("learning_rate").c_str(), nullptr), rate);
  }
}

}  // namespace
}  // namespace lodestar::job
