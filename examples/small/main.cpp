// 7. The program.
//
//     small show all_reduce 4             prints a plan
//     small verify FILE                   proves one, or says why it is wrong
//     small run [RANK RANKS MEETING]      this process is a rank: all three collectives, on some
//     data
//           [--plan FILE] [--kill RANK] [--timeout MS]
//
// Without RANK, RANKS and MEETING (a file that doesn't exist yet), `run` takes them from the
// environment that `tutti run` makes. --plan: the all_reduce is made by a plan of your own. --kill:
// this rank dies in the second all_reduce; see what the others say. It exits with 1 when something
// is wrong.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "job.h"
#include "ring.h"
#include "run.h"
#include "text.h"
#include "verify.h"

namespace {

using namespace small;

struct Options {
  std::string meeting;
  int rank = 0;
  int ranks = 0;
  std::string plan;
  int kill = -1;
  int timeout = 5000;
};

int number(const std::string& text) {
  std::size_t end = 0;
  int value = -1;
  try {
    value = std::stoi(text, &end);
  } catch (const std::exception&) {
  }
  if (value < 0 || end != text.size()) throw Error("'" + text + "' is not a number from 0 on");
  return value;
}

std::string read_file(const std::string& name) {
  std::ifstream file(name);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) throw Error("cannot read the file " + name);
  return text.str();
}

/// The text of an element of `rank`: no two ranks, and no two places, have the same.
float input(int rank, std::size_t i) {
  return static_cast<float>((rank + 1) * 1000) + static_cast<float>(i % 1000);
}

/// Makes the collective with `count` floats a block, and compares every element with what it should
/// be.
void try_out(Job& job, const Proved& plan, std::size_t count) {
  const auto n = static_cast<std::size_t>(job.ranks());
  const Collective collective = plan->collective;
  std::vector<float> in(count * in_blocks(collective, job.ranks()));
  std::vector<float> out(count * out_blocks(collective, job.ranks()));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = input(job.rank(), i);
  run(job, plan, {Type::float32, count, in.data(), out.data()});
  for (std::size_t i = 0; i < out.size(); ++i) {
    float expected = 0;
    if (collective == Collective::all_gather) {
      expected = input(static_cast<int>(i / count), i % count);
    } else {  // sums of whole numbers below 2^24, which are exact in any order
      const bool scatter = collective == Collective::reduce_scatter;
      const std::size_t at = scatter ? static_cast<std::size_t>(job.rank()) * count + i : i;
      for (std::size_t r = 0; r < n; ++r) expected += input(static_cast<int>(r), at);
    }
    if (out[i] != expected) {
      job.fail(name(collective) + " on rank " + std::to_string(job.rank()) + ": element " +
               std::to_string(i) + " is " + std::to_string(out[i]) + ", not " +
               std::to_string(expected));
    }
  }
  std::printf("rank %d of %d: %s of %zu floats is right\n", job.rank(), job.ranks(),
              name(collective).c_str(), count);
  std::fflush(stdout);  // so that it is said if this rank dies next
}

void run_rank(const Options& options) {
  Job job(options.meeting, options.rank, options.ranks, std::chrono::milliseconds(options.timeout));
  for (Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const bool own = c == Collective::all_reduce && !options.plan.empty();
    const Proved plan =
        verify(own ? plan_from_text(read_file(options.plan)) : ring(c, job.ranks()));
    if (plan->collective != c) throw Error("--plan takes the plan of an all_reduce");
    for (std::size_t count : {std::size_t{5}, std::size_t{300000}}) {
      if (options.kill == job.rank() && count > 5) std::raise(SIGKILL);
      try_out(job, plan, count);
    }
  }
}

/// The job that `tutti run` has started, if it has.
void read_environment(Options& options) {
  const char* rank = std::getenv("TUTTI_RANK");
  const char* size = std::getenv("TUTTI_SIZE");
  const char* id = std::getenv("TUTTI_UNIQUE_ID");
  if (!rank || !size || !id) return;
  options.rank = number(rank);
  options.ranks = number(size);
  // The id is new for each job, so it makes a file's name that is new, too.
  const std::size_t hash = std::hash<std::string>{}(id);
  options.meeting = "/tmp/tutti-small-" + std::to_string(hash);
}

Options read_arguments(const std::vector<std::string>& arguments) {
  Options options;
  read_environment(options);
  std::vector<std::string> places;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (!a.starts_with("--")) {
      places.push_back(a);
      continue;
    }
    if (i + 1 == arguments.size()) throw Error(a + " needs a value");
    const std::string& value = arguments[++i];
    if (a == "--plan") {
      options.plan = value;
    } else if (a == "--kill") {
      options.kill = number(value);
    } else if (a == "--timeout") {
      options.timeout = number(value);
    } else {
      throw Error("there is no option " + a);
    }
  }
  if (places.size() == 3) {
    options.rank = number(places[0]);
    options.ranks = number(places[1]);
    options.meeting = places[2];
  } else if (!places.empty() || options.ranks == 0) {
    throw Error("small run needs RANK RANKS MEETING, or `tutti run`, which says them");
  }
  return options;
}

Collective collective_of(const std::string& text) {
  for (Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    if (name(c) == text) return c;
  }
  throw Error("'" + text + "' is none of all_reduce, all_gather and reduce_scatter");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments[0];
  try {
    if (command == "run") {
      run_rank(read_arguments(arguments));
    } else if (command == "show" && arguments.size() == 3) {
      const int ranks = number(arguments[2]);
      if (ranks < 1 || ranks > kMostRanks) throw Error("a job has 1 to 64 ranks");
      std::fputs(to_text(ring(collective_of(arguments[1]), ranks)).c_str(), stdout);
    } else if (command == "verify" && arguments.size() == 2) {
      const Proved plan = verify(plan_from_text(read_file(arguments[1])));
      std::printf("proved: %s of %d ranks ends, and is right, in every timing\n",
                  name(plan->collective).c_str(), plan->ranks());
    } else {
      std::fputs(
          "small show COLLECTIVE RANKS | small verify FILE | small run [RANK RANKS MEETING] "
          "[--plan FILE] [--kill RANK] [--timeout MS]\n",
          stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "small: %s\n", error.what());
    return 1;
  }
}
