// The secret of a job: on no command line, in no message, and in the environment of its ranks
// alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "bootstrap/unique_id.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "tests/support/run_job.h"
#include "tests/support/variable.h"
#include "tests/tools/run_hosts_fixture.h"

namespace tutti {
namespace {

/// The first piece of the id's secret, of 16 digits, that `text` has; "": none.
std::string shown_in(const std::string& text, const std::string& id) {
  constexpr std::size_t kSecret = 64, kDigits = 64, kPiece = 16;  // where it is in the id's text
  for (std::size_t at = kSecret; at + kPiece <= kSecret + kDigits; ++at) {
    const std::string piece = id.substr(at, kPiece);
    if (text.find(piece) != std::string::npos) return piece;
  }
  return "";
}

TEST_F(RunOnHosts, TheSecretIsOnNoCommandLineAndInNoMessage) {
  // As the launcher sees them: its own words, and those of every process that there is, where a
  // rank runs.
  launcher(fmt::format("echo \"$@\" >>{}/words", folder.path()));
  const test::Variable debug("TUTTI_LOG", "debug");
  const std::string script = fmt::format(
      "echo $TUTTI_UNIQUE_ID >{0}/id.$TUTTI_RANK; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' "
      "' ' "
      ">>{0}/words; exec {1} 2",
      folder.path(), ENVIRONMENT_RANK);
  Job job(shell_on("a:2,localhost:1", script));
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::string id = folder.read("id.0").substr(0, 256), words = folder.read("words");
  ASSERT_EQ(id.size(), 256U);
  EXPECT_EQ(folder.read("id.2").substr(0, 256), id);
  ASSERT_NE(words.find("run-agent"), std::string::npos);
  EXPECT_EQ(shown_in(words, id), "");
  EXPECT_EQ(shown_in(job.out() + job.err(), id), "");
  EXPECT_EQ(shown_in(id, id), id.substr(64, 16));  // it would be found
}

TEST(Secrets, OfIdsThatAreRefusedAreNotShown) {
  const std::string id = to_string(make_unique_id());
  for (std::string wrong : {id.substr(0, 255), id + "0", std::string(1, 'x') + id.substr(1),
                            id.substr(0, 100) + (id[100] == '0' ? '1' : '0') + id.substr(101)}) {
    const test::Variable given("TUTTI_UNIQUE_ID", wrong);
    const test::Variable rank("TUTTI_RANK", "1"), size("TUTTI_SIZE", "2");
    try {
      Communicator::from_environment();
      FAIL() << "it was taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("id"), std::string::npos) << error.what();
      EXPECT_EQ(shown_in(error.what(), id), "");
    }
  }
}

}  // namespace
}  // namespace tutti
