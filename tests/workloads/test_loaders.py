"""Each format on a small hand-written file: units, columns, and what makes a row bad."""

import gzip
import json

import pytest

from workloads.traces.admission import AdmissionRules
from workloads.traces.azure import load_azure
from workloads.traces.burstgpt import load_burstgpt
from workloads.traces.custom import load_custom
from workloads.traces.errors import TraceError
from workloads.traces.lengths import load_lengths
from workloads.traces.mooncake import load_mooncake
from workloads.traces.qwen import load_qwen

DROP = AdmissionRules(bad_rows="drop")


def rows(trace):
    return [(row.arrival_s, row.input_tokens, row.output_tokens, row.task) for row in trace.rows]


def jsonl(*objects):
    return "".join(json.dumps(o) + "\n" for o in objects)


def test_c31_azure_fractions_keep_full_precision(write):
    stamps = ["18:17:00.0010000", "18:17:00.0020000", "18:17:00.0090000", "18:17:00.0110001"]
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "".join(f"2023-11-16 {s},10,1\r\n" for s in stamps)
    trace, report = load_azure(write("a.csv", text))
    assert [row.arrival_s for row in trace.rows] == [0.0, 0.001, 0.008, 0.0100001]
    assert report.ties == 0


def test_c32_azure_2024_stamps_with_offset_without_fraction_crlf_bom_no_last_newline(write):
    text = (
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\r\n"
        "2024-05-10 00:00:01+00:00,2399,6\r\n"
        "2024-05-10 02:00:02.500000+02:00,76,15\r\n"
        "2024-05-09 23:00:03-01:00,12,7"
    )
    trace, report = load_azure(write("a.csv", text.encode()), name="azure_2024")
    assert trace.name == "azure_2024"
    assert rows(trace) == [(0.0, 2162, 5, ""), (0.99007, 2399, 6, ""), (2.49007, 76, 15, ""), (2.99007, 12, 7, "")]
    assert (report.rows_read, report.rows_kept, report.bad_rows) == (4, 4, 0)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("yesterday,10,1", "TIMESTAMP must be a timestamp"),
        ("2023-02-30 10:00:00,10,1", "names no day that exists"),
        ("2023-02-20 25:00:00,10,1", "names no time that exists"),
        ("2023-11-16 18:17:03,ten,1", "ContextTokens must be a number"),
        ("2023-11-16 18:17:03,1.5,1", "ContextTokens must be a whole number"),
        ("2023-11-16 18:17:03,-4,1", "ContextTokens must not be negative"),
        ("2023-11-16 18:17:03,1e400,1", "ContextTokens must be at most 1000000000 tokens, got 1e400"),
        ("2023-11-16 18:17:03,nan,1", "ContextTokens must be a finite number"),
        ("2023-11-16 18:17:03,,1", "ContextTokens is missing"),
        ("2023-11-16 18:17:03,10", "2 cells where the header names 3"),
        ("2023-11-16 18:17:03,1,234,5", "4 cells where the header names 3"),
    ],
)
def test_c32_a_bad_row_fails_the_load_with_file_and_line_or_is_dropped_and_counted(write, row, sentence):
    good = "2023-11-16 18:17:{},10,1"
    path = write(
        "bad.csv", "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", good.format("01"), row, good.format("02")])
    )
    with pytest.raises(TraceError, match=sentence) as caught:
        load_azure(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    trace, report = load_azure(path, rules=DROP)
    assert len(trace.rows) == 2
    assert (report.bad_rows, report.rows_read) == (1, 3)
    assert report.bad_examples[0].startswith("3: ")


def test_azure_column_missing_names_what_the_header_has(write):
    with pytest.raises(TraceError, match="no column named ContextTokens; the header has TIMESTAMP, Tokens"):
        load_azure(write("a.csv", "TIMESTAMP,Tokens,GeneratedTokens\n"))


def test_c34_mooncake_counts_milliseconds(write):
    text = jsonl(
        {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]},
        {"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": [0]},
        {"timestamp": 3000, "input_length": 5, "output_length": 9, "hash_ids": []},
    )
    trace, report = load_mooncake(write("m.jsonl", text))
    assert rows(trace) == [(0.0, 6758, 500, ""), (3.0, 7322, 490, ""), (3.0, 5, 9, "")]
    assert report.ties == 1


def test_c34_burstgpt_counts_seconds(write):
    text = (
        "Timestamp,Model,Session ID,Request tokens,Response tokens,Total tokens,Elapsed time,Log Type\n"
        "5,ChatGPT,1,472,18,490,2.5,Conversation log\n45.5,GPT-4,2,1087,230,1317,9,API log\n"
    )
    trace, report = load_burstgpt(write("b.csv", text))
    assert rows(trace) == [(0.0, 472, 18, ""), (40.5, 1087, 230, "")]
    assert report.mean_rate_rps == pytest.approx(1 / 40.5)


def test_c36_failed_burstgpt_rows_are_dropped_and_counted(write):
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "6,ChatGPT,100,0,100,Conversation log\n"
        "7,ChatGPT,0,4,4,Conversation log\n"
        "8,GPT-4,1087,230,1317,API log\n"
    )
    path = write("b.csv", text)
    trace, report = load_burstgpt(path)
    assert [row.input_tokens for row in trace.rows] == [472, 1087]
    assert (report.zero_output_rows, report.zero_input_rows, report.rows_read, report.rows_kept) == (1, 1, 4, 2)
    with pytest.raises(TraceError, match=r"b\.csv:3: no output tokens"):
        load_burstgpt(path, rules=AdmissionRules(zero_rows="fail"))


QWEN = jsonl(
    {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.0, "input_length": 100, "output_length": 50, "type": "text"},
    {"chat_id": 2, "parent_chat_id": -1, "timestamp": 1.25, "input_length": 900, "output_length": 9, "type": "search"},
    {"chat_id": 3, "parent_chat_id": 1, "timestamp": 61.114, "input_length": 170, "output_length": 7, "type": "text"},
    {"chat_id": 4, "parent_chat_id": 3, "timestamp": 62.0, "input_length": 170, "output_length": 5, "type": "text"},
    {"chat_id": 5, "parent_chat_id": 77, "timestamp": 63.0, "input_length": 40, "output_length": 5, "type": "text"},
    {"chat_id": 6, "parent_chat_id": 2, "timestamp": 64.0, "input_length": 950, "output_length": 5, "type": "search"},
)


def test_qwen_whole_counts_every_turn_whole(write):
    trace, _ = load_qwen(write("q.jsonl", QWEN), follow_up="whole")
    assert [row.input_tokens for row in trace.rows] == [100, 900, 170, 170, 40, 950]
    assert [row.task for row in trace.rows] == ["text", "search", "text", "text", "text", "search"]
    assert trace.rows[2].arrival_s == 61.114


def test_qwen_new_tokens_counts_what_a_follow_up_text_turn_adds(write):
    trace, report = load_qwen(write("q.jsonl", QWEN), follow_up="new_tokens")
    # Turn 3 adds 170 - (100 + 50); turn 4 is shorter than its history; turn 5 has no parent here; search stays whole.
    assert [row.input_tokens for row in trace.rows] == [100, 900, 20, 1, 40, 950]
    assert "2, of which 1 shorter" in report.notes[0]
    assert "1 without their parent" in report.notes[0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "a JSON object is expected, got list"),
        ("[" * 100_000, "not JSON of a trace: maximum recursion depth"),
        ('{"timestamp": ' + "9" * 5000 + "}", "not JSON of a trace: Exceeds the limit"),
        ('{"timestamp": 1e300, "input_length": 5, "output_length": 1, "type": "text"}', "timestamp must be within"),
        ('{"timestamp": 1, "input_length": 5, "output_length": 1}', "type is missing"),
        ('{"timestamp": true, "input_length": 5, "output_length": 1, "type": "text"}', "timestamp must be a number"),
        ('{"timestamp": [1], "input_length": 5, "output_length": 1, "type": "text"}', "timestamp must be a number"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 1, "type": "text"}', "timestamp must be a finite"),
        ('{"timestamp": 1, "input_length": null, "output_length": 1, "type": "text"}', "input_length is missing"),
    ],
)
def test_a_bad_json_line_fails_with_file_and_line_or_is_dropped(write, line, sentence):
    path = write("q.jsonl", QWEN + "\n" + line + "\n")
    with pytest.raises(TraceError, match=rf"q\.jsonl:8: .*{sentence}"):
        load_qwen(path)
    trace, report = load_qwen(path, rules=DROP)
    assert (len(trace.rows), report.bad_rows) == (6, 1)


@pytest.mark.parametrize("load", [load_qwen, load_mooncake])
def test_max_rows_reads_no_further(write, load):
    trace, report = load(write("q.jsonl", QWEN + "{broken\n"), rules=AdmissionRules(max_rows=6))
    assert len(trace.rows) == 6
    assert report.stopped_early


LENGTHS = "order,type,input_length,output_length\n2,image,380,76\n0,text,793,532\n1,search,5000,100\n"


def test_lengths_come_in_the_order_of_the_column_with_generated_arrivals(write):
    path = write("l.csv", LENGTHS)
    trace, report = load_lengths(path, rate_rps=4.0, arrival_seed=3)
    assert [row.input_tokens for row in trace.rows] == [793, 5000, 380]
    assert trace.rows[0].arrival_s == 0.0
    assert trace.span_s == pytest.approx(0.5)
    assert report.mean_rate_rps == pytest.approx(4.0)
    assert "arrivals generated" in report.text()
    assert rows(load_lengths(path, rate_rps=4.0, arrival_seed=3)[0]) == rows(trace)
    assert rows(load_lengths(path, rate_rps=4.0, arrival_seed=4)[0]) != rows(trace)


def test_lengths_refuse_a_rate_of_zero(write):
    with pytest.raises(TraceError, match="rate_rps must be above 0"):
        load_lengths(write("l.csv", LENGTHS), rate_rps=0.0)


COLUMNS = {"arrival": "at", "input": "prompt", "output": "reply", "class": "kind"}


@pytest.mark.parametrize(
    ("unit", "first", "second"),
    [("s", "10", "11.5"), ("ms", "10000", "11500"), ("timestamp", "2025-01-31T23:59:59Z", "2025-02-01 00:00:00.5")],
)
def test_c34_own_csv_reads_arrivals_in_the_unit_it_is_told(write, unit, first, second):
    path = write("own.csv", f"kind,at,prompt,reply\nchat,{first},7,2\nbatch,{second},9.0,3\n")
    trace, _ = load_custom(path, columns=COLUMNS, arrival_unit=unit)
    assert rows(trace) == [(0.0, 7, 2, "chat"), (1.5, 9, 3, "batch")]


def test_own_jsonl_needs_no_output_and_no_class(write):
    path = write("own.jsonl", '{"at": 1700000000.1234567, "n": 5}\n{"at": 1700000001.1234568, "n": 6}\n')
    trace, _ = load_custom(path, columns={"arrival": "at", "input": "n", "output": None})
    assert rows(trace) == [(0.0, 5, 1, ""), (1.0000001, 6, 1, "")]


def test_own_csv_with_timestamps_says_how_they_are_read(write):
    path = write("own.csv", "arrival_s,input_tokens,output_tokens\n2023-11-16 18:17:03.97,7,2\n")
    with pytest.raises(TraceError, match=r"got '2023-11-16 18:17:03.97' \(workload.arrival_unit=timestamp reads it\)"):
        load_custom(path)


def test_own_csv_with_a_mistyped_column_says_what_there_is(write):
    path = write("own.csv", "at,prompt\n1,2\n")
    with pytest.raises(TraceError, match="no column named promt; the header has at, prompt"):
        load_custom(path, columns={"arrival": "at", "input": "promt", "output": None})
    with pytest.raises(TraceError, match=r"columns\.arival is not known"):
        load_custom(path, columns={"arival": "at"})
    with pytest.raises(TraceError, match=r"columns\.arrival and columns\.input must each name a column"):
        load_custom(path, columns={"arrival": None})


def test_text_that_is_not_utf8_is_one_sentence(write):
    with pytest.raises(TraceError, match="is not UTF-8 text"):
        load_custom(write("own.csv", b"arrival_s,input_tokens,output_tokens\n1,\xff,3\n"))
    with pytest.raises(TraceError, match="is not UTF-8 text"):
        load_mooncake(write("m.jsonl", b'{"timestamp": "\xff"}\n'))


def test_a_packed_file_is_named_as_such(write):
    with pytest.raises(TraceError, match=r"own\.csv is packed \(gzip\): unpack it"):
        load_custom(write("own.csv", gzip.compress(b"arrival_s,input_tokens,output_tokens\n1,2,3\n")))


def test_two_columns_of_one_name_are_refused_where_the_name_is_asked_for(write):
    with pytest.raises(TraceError, match="2 columns are named arrival_s: which is meant is not known"):
        load_custom(write("own.csv", "arrival_s,arrival_s,input_tokens,output_tokens\n0,1,2,3\n"))
    trace, _ = load_custom(write("own.csv", "x,x,arrival_s,input_tokens,output_tokens\n0,1,2,3,4\n1,2,3,4,5\n"))
    assert len(trace.rows) == 2


@pytest.mark.parametrize("arrival", ["1e300", "-1e300", "1e999999999", "1000000000001"])
def test_an_instant_beyond_all_traces_is_a_bad_row(write, arrival):
    with pytest.raises(TraceError, match=r"own\.csv:3: arrival_s must be within 1e\+12 s of the trace's zero"):
        load_custom(write("own.csv", f"arrival_s,input_tokens,output_tokens\n0,2,3\n{arrival},2,3\n"))


@pytest.mark.parametrize("content", ["", "arrival_s,input_tokens,output_tokens\n"])
def test_a_file_without_rows_is_refused(write, content):
    with pytest.raises(TraceError, match=r"is empty|no usable row"):
        load_custom(write("own.csv", content))
