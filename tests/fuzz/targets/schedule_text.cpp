// Pipeline schedules as text: refused with a sentence, or a schedule that the verifier judges and
// that is the same when it is written and read again.
#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/text.h"
#include "parallel/pipeline/verify.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::schedule_text {
namespace {

using namespace parallel::pipeline;

void run(std::string_view input) {
  Schedule schedule;
  if (!accepts(ErrorCode::invalid_argument, [&] { schedule = schedule_from_text(input); })) return;
  require(schedule_from_text(to_text(schedule)) == schedule,
          "a schedule that was read is written and read the same");
  if (schedule.stages() * schedule.micro_batches > 4096) return;
  const parallel::pipeline::Verdict verdict = verify(schedule);
  require(verdict.proved == verdict.story.empty(), "a schedule that is not proved has a story");
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (const Generator& generator : generators()) {
    texts.push_back(to_text(generate(generator, {.ranks = 2, .micro_batches = 4})));
  }
  return texts;
}

const Registered target({"schedule_text", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::schedule_text
