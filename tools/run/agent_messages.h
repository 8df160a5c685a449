// What the launcher of a job and its agents tell each other. `tutti run` starts an agent on every
// other host (over ssh), and agents may start further ones: a tree. Commands travel down it,
// through the agents' standard input, and events travel up, through their standard output. The
// job's secret is in the first command, so it is on no command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class MessageKind : std::uint32_t {
  alive = 1,  // both ways, now and then: a silent neighbour is lost
  // Commands.
  job,         // text: the job (encode(JobDescription))
  start,       // start the ranks (of an elastic job: get ready for start_rank); number, text: the
               // port and the address of PyTorch's store (0: none)
  signal,      // number: a signal for all ranks
  input,       // text: for rank 0's standard input; "": its end
  taken,       // host, number: a stream; value: so many bytes of its output have been taken
  unread,      // number: a stream that nobody reads any more
  start_rank,  // host; number: rank, which has no process; value: milliseconds from now
  word,        // host; number: rank; text: for it (elastic jobs)
  no_more,     // no process is started any more (elastic jobs)
  // Events.
  ready,    // host: it could start its ranks now; value: of rank 0's, a port for PyTorch's store
  lost,     // host; text: why ("": with the one before), number: so many follow with it
  started,  // number: rank; value: its process
  not_started,  // number: rank; value: errno
  ended,        // number: rank; value: its status, as waitpid() has it
  output,       // host, number: a stream; text: whole lines
  fed,          // value: so many bytes of input have been passed on; -1: rank 0 reads no more
  said,         // number: rank; text: what it has said (elastic jobs)
  note,         // host; text: for the user
  gone,         // host: nothing of its ranks is left, and all their output has been sent
  last = gone,
};

struct Message {
  MessageKind kind{};
  std::int32_t host = -1, number = 0, value = 0;
  std::string text;
};

std::string encode(const Message& message);

/// Finds messages in the bytes that arrive.
class MessageReader {
 public:
  void add(std::string_view bytes) { pending_ += bytes; }
  /// Throws Error(mismatch) for bytes that encode() did not make.
  std::optional<Message> next();

 private:
  std::string pending_;
  std::size_t read_ = 0;
};

/// A host of a job and the ranks that it runs.
struct HostShare {
  std::string name;
  int number = 0;  // of the host, in the job
  int first_rank = 0;
  int ranks = 0;
};

/// All that an agent needs to know.
struct JobDescription {
  std::string id;                      // the unique id, as text: a secret
  int size = 1;                        // ranks
  bool tag = false;                    // prefix lines of output with the rank
  bool bind_cores = false;             // each rank to a core, if the host has enough
  bool windows = false;                // preload libtutti_windows.so
  bool elastic = false;                // the launcher starts ranks one by one (elastic_run.h)
  std::vector<std::string> program;    // and its arguments
  std::vector<std::string> variables;  // "NAME=value", beside those of the host
  std::string folder;                  // the ranks' working directory; "": the agent's
  std::vector<std::string> connect;    // the command that runs a command on a host
  std::string tutti;                   // the path of this program on the other hosts
  int fan_out = 16;                    // so many agents are started from one host
  std::vector<HostShare> hosts;        // the receiver's own, then those that it passes the job to
};

std::string encode(const JobDescription& job);
/// Throws Error(mismatch) for text that encode() did not make.
JobDescription decode_job(std::string_view text);

/// The first line that an agent writes: what it is, and its version.
std::string agent_greeting();
constexpr std::string_view kAgentGreeting = "tutti-agent ";

}  // namespace tutti
