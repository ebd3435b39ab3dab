from batchsched.lab.summary import bars, metrics, table
from batchsched.lab.trial import trials
from tests.lab.runs import GPU, played


def runs():
    return trials([played("first come", nodes=2), played("smallest", nodes=2, shortest_first=True)])


def test_the_best_of_a_column_is_marked_whichever_way_better_goes():
    columns = metrics(GPU)
    first, smallest = table(runs(), columns)
    best = {
        metric.key: policy.policy
        for policy in (first, smallest)
        for metric, flag in zip(columns, policy.best, strict=True)
        if flag
    }
    assert best["mean-slowdown"] == "smallest"
    assert set(best.values()) <= {"first come", "smallest"}


def test_equal_values_and_a_single_policy_have_no_best():
    columns = metrics(GPU)
    done = [metric.key for metric in columns].index("done")
    assert [row.best[done] for row in table(runs(), columns)] == [False, False]
    assert not any(table(runs()[:1], columns)[0].best)


def test_the_table_states_what_the_run_states():
    mine = runs()
    columns = metrics(GPU)
    row = table(mine, columns)[0]
    shown = dict(zip((metric.key for metric in columns), row.texts, strict=True))
    assert shown["done"] == str(mine[0].metrics.gangs)
    assert shown["utilisation"] == f"{mine[0].busy[GPU]:.1%}"


def test_bars_have_a_colour_and_a_text_each():
    figure = bars(runs(), metrics(GPU)[0])
    assert len(set(figure.data[0]["marker"]["color"])) == len(figure.data[0]["text"]) == 2
    assert figure.caption == "lower is better"
